"""Readers: from files on disk to labelled splits that are not decoded yet."""
