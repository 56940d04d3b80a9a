"""Runs the examples of the package's docstrings and of a page."""

import doctest
import sys

import kendall
from kendall import _figures, _frames

OPTIONS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL * 0
failed = tried = 0
for module in (kendall, _frames, _figures):
    found = doctest.testmod(module, optionflags=OPTIONS)
    failed, tried = failed + found.failed, tried + found.attempted
page = doctest.testfile(sys.argv[1], module_relative=False, optionflags=OPTIONS)
assert page.attempted > 0, "the page has no example"
assert tried >= 15, f"only {tried} examples ran"
sys.exit(failed + page.failed > 0)
