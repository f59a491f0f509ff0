"""Parts of audio formats: the sample encoder, FFmpeg's encoders and the state of a codec of calls."""
