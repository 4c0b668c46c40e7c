"""How values are shown: tables, HTML, text, data frames, plots and progress bars."""
