"""Reports: text, tables, figures and HTML pages made from results. Imports no experiment code."""

from zetamix.report.figure import Picture as Picture
from zetamix.report.figure import drawing as drawing
from zetamix.report.figure import series_style as series_style
from zetamix.report.page import Section as Section
from zetamix.report.page import render_page as render_page
from zetamix.report.table import Cell as Cell
from zetamix.report.table import Column as Column
from zetamix.report.table import Table as Table
