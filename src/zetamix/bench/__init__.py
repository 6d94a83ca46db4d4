"""`zetamix bench`: our mixing beside a plain copy and beside other libraries, in one run."""
