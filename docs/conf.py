"""The docs as a site: ``make site`` builds it, with warnings as errors."""

import re

from reframe.core.variables import TestVar

project = "Plumbline"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click"]
exclude_patterns = ["_site", "_tools"]

html_theme = "furo"
html_title = "Plumbline"
html_favicon = "../reframe/plumbline/output/report/static/mark.svg"
html_copy_source = False
html_show_copyright = html_show_sphinx = False
# The pages are also read on machines without a network.
html_theme_options = {"footer_icons": []}

# Most blocks are commands, or what they print.
highlight_language = "none"
myst_heading_anchors = 3
# The order of the code, which begins with what every check has.
autodoc_member_order = "bysource"
autodoc_typehints = "none"
# Docstrings name what is in their modules, of which only some classes are in the docs.
nitpick_ignore_regex = [("py:.*", ".*")]
# Two hyphens before an option are two hyphens.
smartquotes = False


# The default of a variable alone, where ReFrame also prints the kind of object that has it.
_in_full = TestVar.__repr__
TestVar.__repr__ = lambda variable: re.sub(r".*value=(.*)\)$", r"\1", _in_full(variable))


def setup(app):
    """Has links between the pages beside docs/ lead to those of the site that include them."""
    app.connect("include-read", _link_within_site)


def _link_within_site(app, path, docname, source):
    found = r"\]\((CONTRIBUTING|CHANGELOG)\.md\)"
    source[0] = re.sub(found, lambda link: f"](docs/{link[1].lower()}.md)", source[0])
