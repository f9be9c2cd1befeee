"""Small container images made of files of this machine, as archives that containerd imports."""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PAUSE = "localhost/pause:1"
TOOLBOX = "localhost/busybox:1"
"""A shell with the usual tools; volumes are made and removed by it."""

_BUSYBOX = Path("/bin/busybox")
_USERS = b"root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """One layer of files over nothing."""

    name: str
    entrypoint: tuple[str, ...]
    programs: Mapping[str, Path]
    """Statically linked programs, by their path in the image."""
    user: str = ""
    texts: Mapping[str, bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)

    def write(self, archive: Path) -> Path:
        """Writes the image in Docker's archive format."""
        layer = self._layer()
        digest = hashlib.sha256(layer).hexdigest()
        configuration = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"User": self.user, "Entrypoint": self.entrypoint, "Env": [_PATH]},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            }
        ).encode()
        named = f"{hashlib.sha256(configuration).hexdigest()}.json"
        listing = [{"Config": named, "RepoTags": [self.name], "Layers": [f"{digest}.tar"]}]
        with tarfile.open(archive, "w") as tar:
            _add(tar, named, configuration)
            _add(tar, f"{digest}.tar", layer)
            _add(tar, "manifest.json", json.dumps(listing).encode())
        return archive

    def _layer(self) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            temporary = tarfile.TarInfo("tmp")
            temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(temporary)
            for path, content in self.texts.items():
                _add(tar, path.lstrip("/"), content)
            for path, program in self.programs.items():
                _add(tar, path.lstrip("/"), program.read_bytes(), mode=0o755)
            for path, target in self.links.items():
                link = tarfile.TarInfo(path.lstrip("/"))
                link.type, link.linkname = tarfile.SYMTYPE, target
                tar.addfile(link)
        return buffer.getvalue()


def pause() -> Image:
    """Holds the namespaces of a pod."""
    return Image(PAUSE, ("/pause", "-P"), {"/pause": Path("/usr/bin/catatonit")})


def toolbox() -> Image:
    applets = subprocess.check_output([_BUSYBOX, "--list"], text=True).split()
    return Image(
        TOOLBOX,
        (),
        {"/bin/busybox": _BUSYBOX},
        texts={"/etc/passwd": _USERS},
        links={f"/bin/{applet}": "busybox" for applet in applets if applet != "busybox"},
    )


def of_program(name: str, program: Path, *, path: str | None = None, user: str = "") -> Image:
    """The image `name` that runs one program, at `path`."""
    path = path or f"/bin/{program.name}"
    return Image(name, (path,), {path: program}, user=user)


def _add(tar: tarfile.TarFile, path: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
