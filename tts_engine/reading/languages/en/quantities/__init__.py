"""Rules of quantities: number words, amounts, units, money, fractions and other numbers with a slash."""
