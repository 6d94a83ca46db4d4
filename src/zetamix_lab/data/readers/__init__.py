"""Readers: from files on disk to a `SampleTable`."""
