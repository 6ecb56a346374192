"""The common parts of all HTML pages: style, pieces of templates, escaping, charts.

A page is one file, and needs no network: its content security policy forbids it to load anything. `page.css` has the
look: light and dark, on a telephone, on paper. `pieces.html` has the macros that templates import.
"""
