"""What a person sees: figures, tables, progress."""
