"""Folders of TensorBoard logs that several homes share."""

from rl_teacher.runs.log_folders import own_folder


def test_experiments_of_one_name_in_several_homes_have_their_own_folders(tmp_path):
    logs, homes = tmp_path / "logs", [tmp_path / "one" / "x", tmp_path / "two" / "x"]
    for experiment in homes:
        experiment.mkdir(parents=True)
    (logs / "x-2").mkdir(parents=True)
    (logs / "x-2" / "events.other").touch()
    found = [own_folder(logs, "x", experiment).name for experiment in [*homes, *homes]]
    assert found == ["x", "x-3", "x", "x-3"]
