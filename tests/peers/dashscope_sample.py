"""A program in the style of DashScope's documentation: a pool created at import, before any key is set.

Its environment alone decides where the pool connects to. The address that it sets later applies to later
connections only.
"""

import os
import sys
import threading

import dashscope
from dashscope.audio.tts_v2 import ResultCallback, SpeechSynthesizerObjectPool

pool = SpeechSynthesizerObjectPool(max_size=3)


class Recorder(ResultCallback):
    def __init__(self, path: str) -> None:
        self.path = path
        self.done = threading.Event()

    def on_open(self) -> None:
        self.file = open(self.path, "wb")  # noqa: SIM115

    def on_complete(self) -> None:
        self.done.set()

    def on_error(self, message: str) -> None:
        print("failed", message)
        self.done.set()

    def on_data(self, data: bytes) -> None:
        self.file.write(data)


def speak(number: int) -> None:
    recorder = Recorder(os.path.join(sys.argv[1], f"result_{number}.mp3"))
    synthesizer = pool.borrow_synthesizer(
        model="cosyvoice-v3-flash", voice="longanyang", seed=12_382, callback=recorder
    )
    synthesizer.call(f"Sentence number {number}: welcome to speech synthesis.")
    recorder.done.wait()
    recorder.file.close()
    print(f"{number}: first package after {synthesizer.get_first_package_delay():.0f} ms")
    pool.return_synthesizer(synthesizer)


if __name__ == "__main__":
    dashscope.base_websocket_api_url = "wss://dashscope-intl.aliyuncs.com/api-ws/v1/inference"
    dashscope.api_key = os.environ["DASHSCOPE_API_KEY"]
    speakers = [threading.Thread(target=speak, args=(number,)) for number in range(3)]
    for speaker in speakers:
        speaker.start()
    for speaker in speakers:
        speaker.join()
    pool.shutdown()
