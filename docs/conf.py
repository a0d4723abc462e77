"""The docs as a site: ``make site`` builds it, with warnings as errors."""

import re

project = "Plumbline"
extensions = ["myst_parser", "sphinx_click"]
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
# Two hyphens before an option are two hyphens.
smartquotes = False


def setup(app):
    """Has links between the pages beside docs/ lead to those of the site that include them."""
    app.connect("include-read", _link_within_site)


def _link_within_site(app, path, docname, source):
    found = r"\]\((CONTRIBUTING|CHANGELOG)\.md\)"
    source[0] = re.sub(found, lambda link: f"](docs/{link[1].lower()}.md)", source[0])
