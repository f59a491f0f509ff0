"""Speak standard input line by line over vivavoce's WebSocket; writes s16le at 24 kHz to standard output.

    vivavoce serve
    echo "Read me as I arrive." | python stream_text.py | aplay -f S16_LE -r 24000

Each word is printed with its time when its audio arrives. Needs only ``pip install websockets``. If the
server requires a key, set VIVAVOCE_KEY in the environment.
"""

import asyncio
import json
import os
import sys

try:
    from websockets.asyncio.client import ClientConnection, connect
    from websockets.exceptions import WebSocketException
except ImportError:
    sys.exit("websockets 13 or later is missing: pip install websockets")

SERVER = "ws://127.0.0.1:8080"


async def write(socket: ClientConnection) -> None:
    """Send the lines of standard input, then the end of the text."""
    await socket.send(json.dumps({"type": "session.config", "response_format": "pcm", "word_times": True}))
    while line := await asyncio.to_thread(sys.stdin.readline):
        await socket.send(json.dumps({"type": "input.text", "text": line}))
    await socket.send(json.dumps({"type": "input.done"}))


async def listen(socket: ClientConnection) -> None:
    """Write the audio to standard output until the utterance ends."""
    async for message in socket:
        if isinstance(message, bytes):
            sys.stdout.buffer.write(message)
            sys.stdout.buffer.flush()
            continue
        event = json.loads(message)
        match event["type"]:
            case "audio.words":
                for word in event["words"]:
                    print(f"{word['start_ms'] / 1000:7.2f} s  {word['word']}", file=sys.stderr)
            case "error":
                sys.exit(event["message"])
            case "session.done":
                return


async def speak(server: str) -> None:
    """Stream one text to the server and its speech back."""
    key = os.environ.get("VIVAVOCE_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else None
    async with connect(f"{server}/v1/audio/speech/stream", additional_headers=headers, proxy=None) as socket:
        await asyncio.gather(write(socket), listen(socket))


if __name__ == "__main__":
    server = sys.argv[1] if len(sys.argv) > 1 else SERVER
    try:
        asyncio.run(speak(server))
    except (OSError, WebSocketException) as error:
        sys.exit(f"{server}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
