"""Every request with a valid key is counted, also one that is refused before it speaks."""

from typing import Any

import pytest

REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": ("/v1/audio/speech", {"input": "One.", "model": "tts-1", "voice": "anna"}),
    "cartesia": ("/tts/bytes", {"transcript": "One.", "model_id": "sonic-2", "output_format": {}}),
    "elevenlabs": ("/v1/text-to-speech/anna", {"text": "One."}),
    "deepgram": ("/v1/speak?model=anna", {"text": "One."}),
    "inworld": ("/tts/v1/voice", {"text": "One.", "voiceId": "anna", "modelId": "inworld-tts-1"}),
    "jambonz": ("/jambonz/tts", {"text": "One.", "type": "text", "voice": "anna", "language": "en"}),
}


@pytest.mark.parametrize("api", REQUESTS)
@pytest.mark.parametrize("is_json", [True, False])
def test_a_refused_request_is_counted(api: str, is_json: bool, run: Any) -> None:
    path, body = REQUESTS[api]

    async def test(served: Any) -> None:
        answer = await served.client.post(path, **({"json": body} if is_json else {"content": b"{"}))
        assert 400 <= answer.status_code < 500
        metrics = (await served.client.get("/metrics")).text
        (line,) = (line for line in metrics.splitlines() if line.startswith("vivavoce_requests_total{"))
        assert f'api="{api}"' in line
        assert 'outcome="refused"' in line
        assert line.endswith(" 1.0")

    run(test)
