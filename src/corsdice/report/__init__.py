"""What a person sees: files, figures, tables, progress."""
