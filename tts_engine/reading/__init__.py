"""Normalisation of written text into spoken words: numbers, dates, codes, and safe clause boundaries."""
