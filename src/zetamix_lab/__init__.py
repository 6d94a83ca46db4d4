"""The commands `zetamix compare` and `zetamix check`, and what they are made of."""
