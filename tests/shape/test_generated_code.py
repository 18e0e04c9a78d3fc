"""Generated code is committed, complete and marked, so that nobody edits it by hand."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "scorer_sdk/python/evalbus/v1"


def test_every_generated_file_is_marked_in_its_first_line() -> None:
    files = sorted(path for path in GENERATED.iterdir() if path.is_file())

    assert files
    assert [path.name for path in files if "@generated" not in path.read_text().splitlines()[0]] == []


def test_every_proto_file_has_code_and_types() -> None:
    protos = {path.stem for path in (ROOT / "proto/evalbus/v1").glob("*.proto")}

    assert protos
    for ending in ("_pb2.py", "_pb2.pyi"):
        assert {path.name.removesuffix(ending) for path in GENERATED.glob(f"*{ending}")} == protos
