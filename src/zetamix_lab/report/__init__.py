"""Reports: text, tables, figures and HTML pages made from results. Imports no experiment code."""

from zetamix_lab.report.figure import Picture as Picture
from zetamix_lab.report.figure import drawing as drawing
from zetamix_lab.report.figure import series_style as series_style
from zetamix_lab.report.page import Section as Section
from zetamix_lab.report.page import render_page as render_page
from zetamix_lab.report.table import Cell as Cell
from zetamix_lab.report.table import Table as Table
