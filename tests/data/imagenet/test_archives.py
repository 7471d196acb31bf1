"""Archives are untrusted: whatever is wrong with one ends in a sentence, and nothing is written."""

import gzip
import io
import re
import tarfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from conftest import ROOT
from rectifiers.data.imagenet import archives
from rectifiers.data.imagenet.archives import (
    Archive,
    list_members,
    read_devkit,
    read_expected,
    verify,
)
from rectifiers.runtime.errors import InputError
from refusals import refused

WANTED = re.compile(r"a\d+\.JPEG")


def tar_of(*entries: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                file.write(entry.tobuf())
            else:
                info = tarfile.TarInfo(entry[0])
                info.size = len(entry[1])
                tar.addfile(info, io.BytesIO(entry[1]))
    return file.getvalue()


def special(name: str, kind: bytes, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


def listed(content: bytes, most: int = 3, most_bytes: int = 1000) -> list[archives.Member]:
    return list_members(
        io.BytesIO(content), "x.tar", WANTED, size=len(content), most=most, most_bytes=most_bytes
    )


def test_members_are_sorted_with_their_offsets() -> None:
    content = tar_of(("a2.JPEG", b"two"), ("a10.JPEG", b"ten"), ("a1.JPEG", b"one"))
    members = listed(content)
    assert [m.name for m in members] == ["a1.JPEG", "a10.JPEG", "a2.JPEG"]
    assert [content[m.offset : m.offset + m.bytes] for m in members] == [b"one", b"ten", b"two"]


FOREIGN = "is no file that belongs there"
HOSTILE = [
    (tar_of(("../a1.JPEG", b"x")), rf"'\.\./a1\.JPEG' {FOREIGN}"),
    (tar_of(("a1.JPEG\n", b"x")), rf"'a1\.JPEG\\n' {FOREIGN}"),
    (tar_of(("a" * 3_000_000, b"x")), rf"'a{{119}} {FOREIGN}"),
    (tar_of(special("a1.JPEG", tarfile.SYMTYPE, "/etc/passwd")), rf"'a1\.JPEG' {FOREIGN}"),
    (tar_of(("a1.JPEG", b"x"), ("a1.JPEG", b"y")), rf"'a1\.JPEG' {FOREIGN}"),
    (tar_of(*((f"a{i}.JPEG", b"x") for i in range(4))), rf"'a3\.JPEG' {FOREIGN}"),
    (tar_of(("a1.JPEG", bytes(1001))), rf"'a1\.JPEG' {FOREIGN}"),
    (tar_of(("a1.JPEG", bytes(900)))[:1000], rf"'a1\.JPEG' {FOREIGN}"),
    (tar_of(special("a1.JPEG", tarfile.REGTYPE, size=-1)), rf"{FOREIGN}|cannot be read as a"),
    (special("a1", tarfile.GNUTYPE_LONGNAME).tobuf() * 1500, "cannot be read as a tar"),
    (b"no tar at all" * 100, "cannot be read as a tar"),
]


@pytest.mark.parametrize(("content", "sentence"), HOSTILE)
def test_a_hostile_tar_is_refused_in_one_sentence(content: bytes, sentence: str) -> None:
    with refused(rf"^x\.tar.*{sentence}.*fetch it again"):
        listed(content)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2047), st.integers(0, 255)), min_size=1, max_size=8),
    st.integers(0, 3072),
)
def test_damage_is_refused_or_harmless(changes: list[tuple[int, int]], cut: int) -> None:
    content = bytearray(tar_of(("a1.JPEG", b"one"), ("a2.JPEG", b"two")))
    for place, value in changes:
        content[place] = value
    content = content[: max(cut, 600)]
    try:
        for member in listed(bytes(content)):
            assert WANTED.fullmatch(member.name)
            assert 0 <= member.offset <= member.offset + member.bytes <= len(content)
    except InputError:
        pass


def test_a_sparse_file_that_claims_terabytes_is_refused() -> None:
    info = special("a1.JPEG", tarfile.GNUTYPE_SPARSE)
    with refused(rf"{FOREIGN}|cannot be read as a tar"):
        listed(tar_of(info))
    pax = tarfile.TarInfo("a1.JPEG")
    sparse = {"major": "1", "minor": "0", "realsize": str(2**42)}
    pax.pax_headers = {f"GNU.sparse.{key}": value for key, value in sparse.items()}
    with pytest.raises(InputError):
        listed(tar_of(pax))


# ---- pins ----


@pytest.mark.parametrize(
    ("content", "size", "reason"),
    [
        (None, None, "is missing; put the archive"),
        (b"x", 2, "has 1 bytes and the pinned archive 2; fetch it again"),
        (b"y", 1, r"has the md5 \w+ and the pinned archive .*; fetch it again"),
    ],
)
def test_wrong_archive_is_refused(content: bytes | None, size, reason: str, tmp_path) -> None:
    path = tmp_path / "x.tar"
    if content is not None:
        path.write_bytes(content)
    with refused(rf"x\.tar {reason}"):
        verify(Archive(path, "9dd4e461268c8034f5c8564e155c67a6", size))  # the md5 of b"x"


def test_dvc_pins_the_official_archives() -> None:
    expected = read_expected(ROOT / "pipelines" / "imagenet" / "archives.yaml")
    assert {a.md5 for a in expected.archives.values()} == {
        "1d675b47d978889d74fa0da5fadfb00e",
        "29b22e2961454d5413ddabcf34fc5622",
        "fa75699e90414af021442c21a62c3abf",
    }
    assert (expected.classes, expected.train_images, expected.val_images) == (1000, 1281167, 50000)
    pinned = yaml.safe_load((ROOT / "data.dvc").read_text())["outs"]
    assert {out["path"]: out["md5"] for out in pinned} == expected.md5s


# ---- the devkit ----

# gzip's own function keeps the time, and a test's name would differ between the processes of
# pytest-xdist.
packed = partial(gzip.compress, mtime=0)
BASE = "ILSVRC2012_devkit_t12/data"
LEAVES = ((1, "n00000003", 0), (2, "n00000001", 0), (3, "n00000002", 0))
INNER = ((4, "n00000000", 2),)


def kit(
    path: Path, rows: tuple = LEAVES + INNER, truth: str = "1\n2\n3\n1\n", meta: bytes | None = None
) -> Path:
    fields = ("ILSVRC2012_ID", "WNID", "words", "num_children")
    synsets = np.zeros((len(rows), 1), dtype=[(name, object) for name in fields])
    for i, (number, wnid, children) in enumerate(rows):
        synsets[i, 0] = (float(number), wnid, f"word {wnid}", float(children))
    mat = io.BytesIO()
    savemat(mat, {"synsets": synsets})
    files = (
        special(BASE, tarfile.DIRTYPE),
        (f"{BASE}/meta.mat", mat.getvalue() if meta is None else meta),
        (f"{BASE}/ILSVRC2012_validation_ground_truth.txt", truth.encode()),
    )
    path.write_bytes(packed(tar_of(*files)))
    return path


def test_a_label_is_the_position_among_wnids(tmp_path: Path) -> None:
    devkit = read_devkit(kit(tmp_path / "kit.tar.gz"), 3, 4)
    assert devkit.wnids == ("n00000001", "n00000002", "n00000003")
    assert devkit.words == ("word n00000001", "word n00000002", "word n00000003")
    assert devkit.val_labels == (2, 0, 1, 2)  # the trap would give (0, 1, 2, 0)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"meta": b"no mat"}, "cannot be read as the devkit"),
        ({"truth": "1\n2\nthree\n1\n"}, "cannot be read as the devkit"),
        ({"truth": "1\n2\n3\n"}, "must have 3 classes, .* and 4 labels"),
        ({"truth": "1\n2\n3\n4\n"}, "must have 3 classes, .* and 4 labels"),
        ({"rows": LEAVES[:2] + INNER}, "must have 3"),
        (
            {"rows": (*LEAVES[:2], (3, "../evil", 0))},
            "must have 3 classes, each",
        ),
    ],
)
def test_an_inconsistent_devkit_is_refused(changed: dict, reason: str, tmp_path: Path) -> None:
    path = kit(tmp_path / "kit.tar.gz", **changed)
    with refused(rf"kit\.tar\.gz.*{reason}.*fetch it again"):
        read_devkit(path, 3, 4)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (packed(tar_of(("kit/it.txt", b"it")))[:-20], "Compressed file ended"),
        (b"no gzip", "not a gzip file"),
        (packed(tar_of(("kit/x", b"it"))), r"meta\.mat' not found"),
        (packed(tar_of(special(f"{BASE}/meta.mat", tarfile.SYMTYPE, "/etc/passwd"))), "not found"),
    ],
)
def test_hostile_devkit_is_refused(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "kit.tar.gz"
    path.write_bytes(content)
    with refused(rf"kit\.tar\.gz cannot be .*{sentence}"):
        read_devkit(path, 3, 4)
