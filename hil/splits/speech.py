"""Speech for a detector of turns: sentences spoken by a synthesiser, whole or broken off, and their spectra.

No package that can be fetched by name alone brings recordings of people in number, so eSpeak NG speaks: its library and
voices come in a wheel, and are called here by `ctypes`. A synthesiser has no breath, no room and no noise; what is measured
with it says how a coding moves the model's decisions about clear speech, and no more.

The spectrum is that of Whisper's front end (Radford et al., 2022) as the model's own package computes it: 80 mel bands on
Slaney's scale, windows of 25 ms every 10 ms, base-10 logarithm within 8 of the loudest, on sound of zero mean and unit
variance.
"""

# scipy has no type information
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.signal import resample_poly

from hil.splits.pictures import Side
from shared.errors import ModelError

RATE_HZ = 16_000
SECONDS = 8
BANDS, WINDOW, HOP = 80, 400, 160
QUIETEST = 1e-10
SILENT_S = 0.2
"""Silence after the last word, in which a detector of turns is asked."""

VOICES: dict[Side, tuple[str, ...]] = {
    "judge": ("en+m1", "en+m3", "en+f1", "en+f3", "en-us", "en+m7"),
    "fit": ("en+m2", "en+f2", "en+f4"),
}
_SYNCHRONOUS, _UTF8, _BY_CHARACTER, _SPEED, _PITCH = 2, 1, 1, 1, 3

Sound = npt.NDArray[np.float64]
Spectrum = npt.NDArray[np.float32]


class Speaker:
    """eSpeak NG from a folder that holds its library and its data. Raises `ModelError` where it does not load."""

    def __init__(self, folder: Path) -> None:
        try:
            self._library = ctypes.CDLL(str(folder / "libespeak-ng.so"))
        except OSError as error:
            raise ModelError(f"{folder}: the speech synthesiser does not load on this machine ({error})") from error
        self._rate_hz = int(self._library.espeak_Initialize(_SYNCHRONOUS, 0, str(folder).encode(), 0))
        if self._rate_hz <= 0:
            raise ModelError(f"{folder}: the speech synthesiser does not find its data there")

    def say(self, words: str, voice: str, words_per_minute: int, pitch: int) -> Sound:
        """The sound of some words at 16 kHz."""
        heard: list[npt.NDArray[np.int16]] = []

        def hear(samples: object, count: int, _events: object) -> int:
            if samples and count > 0:
                heard.append(np.frombuffer(ctypes.string_at(samples, 2 * count), np.int16))  # type: ignore[arg-type]
            return 0

        library = self._library
        listener = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(hear)
        library.espeak_SetSynthCallback(listener)
        if library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise ModelError(f"the speech synthesiser has no voice {voice!r}")
        library.espeak_SetParameter(_SPEED, words_per_minute, 0)
        library.espeak_SetParameter(_PITCH, pitch, 0)
        text = words.encode()
        library.espeak_Synth(text, ctypes.c_size_t(len(text) + 1), 0, _BY_CHARACTER, 0, _UTF8, None, None)
        whole = np.concatenate(heard).astype(np.float64) / 32768.0
        divisor = int(np.gcd(RATE_HZ, self._rate_hz))
        return np.asarray(resample_poly(whole, RATE_HZ // divisor, self._rate_hz // divisor), np.float64)


def turn(random: np.random.Generator, speaker: Speaker, side: Side, sentences: Sequence[str]) -> Spectrum:
    """The spectrum of one turn, (1, 80, 800): a sentence to its end, or, as often, broken off at some word."""
    words = sentences[int(random.integers(len(sentences)))].split()
    whole = bool(random.random() < 0.5)
    said = words if whole else words[: int(random.integers(2, max(3, len(words) - 1)))]
    voices = VOICES[side]
    sound = speaker.say(
        " ".join(said) if whole else " ".join(said).rstrip(".,;") + ",",
        voices[int(random.integers(len(voices)))],
        int(random.integers(140, 200)),
        int(random.integers(35, 65)),
    )
    heard = np.flatnonzero(np.abs(sound) > 0.01)
    spoken = sound[: int(heard[-1]) + 1] if len(heard) else sound
    silence = np.zeros(int(SILENT_S * RATE_HZ))
    noisy = np.concatenate([spoken, silence]) * random.uniform(0.3, 1.0)
    return spectrum(noisy + random.normal(0.0, 0.001, len(noisy)))


def spectrum(sound: Sound) -> Spectrum:
    """The last eight seconds of a sound, or the sound with silence before it, as the model takes it: (1, 80, 800)."""
    length = SECONDS * RATE_HZ
    window = np.pad(sound[-length:], (max(0, length - len(sound)), 0))
    scaled = (window - window.mean()) / np.sqrt(window.var() + 1e-7)
    padded = np.pad(scaled, WINDOW // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    power = np.abs(np.fft.rfft(frames * np.hanning(WINDOW + 1)[:-1], axis=-1)) ** 2
    bands = np.log10(np.maximum(QUIETEST, mel_filters() @ power.T))[:, :-1]
    limited = np.maximum(bands, bands.max() - 8.0)
    return np.asarray(((limited + 4.0) / 4.0)[np.newaxis], np.float32)


def mel_filters() -> Sound:
    """Triangles of equal area on Slaney's mel scale, (80, 201): linear to 1 kHz, logarithmic above."""
    bins_hz = np.linspace(0.0, RATE_HZ / 2, WINDOW // 2 + 1)
    corners_hz = _hertz(np.linspace(0.0, _mel(RATE_HZ / 2), BANDS + 2))
    widths = np.diff(corners_hz)
    slopes = corners_hz[:, np.newaxis] - bins_hz[np.newaxis]
    rising, falling = -slopes[:-2] / widths[:-1, np.newaxis], slopes[2:] / widths[1:, np.newaxis]
    heights = 2.0 / (corners_hz[2:] - corners_hz[:-2])
    return np.asarray(np.maximum(0.0, np.minimum(rising, falling)) * heights[:, np.newaxis], np.float64)


def _mel(hertz: float) -> float:
    return 3.0 * hertz / 200.0 if hertz < 1000.0 else 15.0 + float(np.log(hertz / 1000.0)) * 27.0 / float(np.log(6.4))


def _hertz(mels: Sound) -> Sound:
    return np.where(mels < 15.0, 200.0 * mels / 3.0, 1000.0 * np.exp(np.log(6.4) / 27.0 * (mels - 15.0)))
