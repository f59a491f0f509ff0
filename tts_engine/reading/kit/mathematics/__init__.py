"""Mathematics in text: plain, Unicode and TeX become one tree, which is said with the words of a language."""
