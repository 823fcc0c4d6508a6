from conftest import HERE, LONGEST_FILES


def test_the_files_that_start_first_exist_and_are_named_once() -> None:
    assert [name for name in LONGEST_FILES if not (HERE / name).is_file()] == []
    assert len(set(LONGEST_FILES)) == len(LONGEST_FILES)
