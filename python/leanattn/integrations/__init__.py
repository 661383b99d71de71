"""Other libraries with leanattn for their attention; each module imports one of them."""
