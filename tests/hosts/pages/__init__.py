"""Executed pages of the documentation: the computers that they are typed on, and their runs."""

from pages.neutral import Neutral
from pages.page_run import BlockRun, run_page
from pages.surroundings import Surroundings, at_laptop_of, on_login_node

__all__ = ["BlockRun", "Neutral", "Surroundings", "at_laptop_of", "on_login_node", "run_page"]
