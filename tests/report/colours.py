"""How colours look to readers with and without red-green blindness, and how far apart they then are."""

from __future__ import annotations

import numpy as np

MACHADO = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
"""Machado, Oliveira and Fernandes (2009), severity 1, for linear RGB."""
TO_XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
                   [0.0193339, 0.1191920, 0.9503041]])  # fmt: skip
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(colour):
    """#RRGGBB as linear RGB."""
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def seen(colour, sight):
    """A colour in CIELAB, as somebody with this sight sees it."""
    xyz = TO_XYZ @ np.clip(MACHADO[sight] @ linear(colour), 0, 1) / WHITE
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(first, second):
    """CIEDE2000; 1 is just noticeable side by side."""
    (l1, a1, b1), (l2, a2, b2) = first, second
    c = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 1.5 - 0.5 * np.sqrt(c**7 / (c**7 + 25.0**7))
    c1, c2 = np.hypot(g * a1, b1), np.hypot(g * a2, b2)
    h1, h2 = np.degrees(np.arctan2(b1, g * a1)) % 360, np.degrees(np.arctan2(b2, g * a2)) % 360
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    hue = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn) / 2)
    mean_l, mean_c = (l1 + l2) / 2, (c1 + c2) / 2
    mean_h = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    t = (1 - 0.17 * np.cos(np.radians(mean_h - 30)) + 0.24 * np.cos(np.radians(2 * mean_h))
         + 0.32 * np.cos(np.radians(3 * mean_h + 6)) - 0.2 * np.cos(np.radians(4 * mean_h - 63)))  # fmt: skip
    by_l = (l2 - l1) / (1 + 0.015 * (mean_l - 50) ** 2 / np.sqrt(20 + (mean_l - 50) ** 2))
    by_c, by_h = (c2 - c1) / (1 + 0.045 * mean_c), hue / (1 + 0.015 * mean_c * t)
    rotation = np.sin(np.radians(60 * np.exp(-(((mean_h - 275) / 25) ** 2))))
    mixed = -2 * np.sqrt(mean_c**7 / (mean_c**7 + 25.0**7)) * rotation * by_c * by_h
    return float(np.sqrt(by_l**2 + by_c**2 + by_h**2 + mixed))


def contrast(one, other):
    """WCAG's contrast ratio."""
    light, dark = sorted((TO_XYZ[1] @ linear(one), TO_XYZ[1] @ linear(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
