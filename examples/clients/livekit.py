"""LiveKit's Cartesia plugin with a vivavoce server: token text in, word times out."""

from livekit.agents import AgentSession
from livekit.plugins import cartesia

tts = cartesia.TTS(
    base_url="http://127.0.0.1:8080", api_key="a key of the server, or any text without keys", voice="heart"
)
session = AgentSession(tts=tts)  # with your recogniser, language model and voice activity detection
