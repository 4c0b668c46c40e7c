"""Display of values: tables, HTML, text, data frames, plots and progress bars."""
