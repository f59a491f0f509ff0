"""Pipecat's own services with a vivavoce server: Cartesia's takes token text, OpenAI's whole sentences."""

from pipecat.services.cartesia.tts import CartesiaTTSService
from pipecat.services.openai.tts import OpenAITTSService

KEY = "a key of the server, or any text without keys"
voice = CartesiaTTSService.Settings(voice="heart")
tts = CartesiaTTSService(api_key=KEY, url="ws://127.0.0.1:8080/tts/websocket", settings=voice)
# Pipecat lets only OpenAI's voice names through; `voices.aliases = {alloy = "heart"}` chooses the voice.
whole_sentences = OpenAITTSService(
    api_key=KEY, base_url="http://127.0.0.1:8080/v1", settings=OpenAITTSService.Settings(voice="alloy")
)
