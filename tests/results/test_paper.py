from rectifiers.results.paper import published, table_1_slopes


def walk(node, path=""):
    if isinstance(node, dict):
        if "value" in node:
            yield path, node
        for key, item in node.items():
            yield from walk(item, f"{path}/{key}")
    elif isinstance(node, list):
        for i, item in enumerate(node):
            yield from walk(item, f"{path}/{i}")


def test_every_number_names_its_sources_and_its_confidence() -> None:
    entries = list(walk(published()))
    assert len(entries) > 100
    for path, entry in entries:
        assert set(entry["source"]) <= published()["sources"].keys(), path
        assert entry["source"] or entry["confidence"] == "recalled", path
        if entry["confidence"].startswith("verified-"):
            assert entry["confidence"] == f"verified-{len(entry['source'])}-sources", path


def test_table_1_has_thirteen_slopes_a_column() -> None:
    shared, wise = table_1_slopes(shared=True), table_1_slopes(shared=False)
    assert len(shared) == len(wise) == 13
    assert shared["conv1"] == 0.681
    assert wise["conv1"] == 0.596
    assert wise["fc2"] == 0.075
