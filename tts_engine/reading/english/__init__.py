"""English: numbers, money, dates, codes and vocabulary."""
