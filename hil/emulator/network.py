"""The sites and links of an emulator, as namespaces and devices of the kernel."""

from __future__ import annotations

from collections.abc import Sequence

from hil.emulator.messages import Link, Place, Places, check_links
from hil.emulator.namespaces import Namespaces, sweep
from hil.emulator.tun import Tun

SUBNET = "10.77"
"""Addresses are of this network, `SUBNET.LINK.1` and `.2`. They exist in our namespaces alone."""


class Network:
    """Namespaces and devices. Use it as a context manager: whatever was built is removed at the end."""

    def __init__(self) -> None:
        self._namespaces = Namespaces()
        self._tuns: list[Tun] = []

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *ending: object) -> None:
        for tun in self._tuns:
            tun.close()
        self._namespaces.close()

    def build(self, links: Sequence[Link]) -> list[tuple[Tun, Tun, Places]]:
        """Make each link: the devices of its near and far end, and where they are. What a killed emulator left behind is
        removed first. Raises `UserError` where links are wrong or the system refuses."""
        check_links(links)
        sweep()
        sites = dict.fromkeys(site for link in links for site in (link.near, link.far))
        namespaces = {site: self._namespaces.add(site) for site in sites}
        built: list[tuple[Tun, Tun, Places]] = []
        for number, link in enumerate(links):
            near, far = (
                Place(site, namespaces[site], f"{self._namespaces.prefix}-{number}{side}", f"{SUBNET}.{number}.{end}")
                for side, site, end in (("n", link.near, 1), ("f", link.far, 2))
            )
            tuns = self._open(near, far.address), self._open(far, near.address)
            built.append((*tuns, Places(near, far)))
        return built

    def _open(self, place: Place, peer: str) -> Tun:
        tun = Tun(place.namespace, place.device, place.address, peer)
        self._tuns.append(tun)
        return tun
