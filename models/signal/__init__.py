"""Signal processing that the voices share: resampling, limiting, edges of speech, room tone."""
