"""Where programs come from: Spack environments, pip, PATH; mirrors and bills of materials."""
