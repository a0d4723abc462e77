"""Plumbline: holds a machine against what it is known to do, over ReFrame and Spack."""
