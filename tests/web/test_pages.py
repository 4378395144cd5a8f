"""The built page, its files, and the documentation."""

import re

import pytest

from tests.web.conftest import assert_problem


class TestPage:
    @pytest.mark.parametrize("path", ["/", "/e/hopper", "/e/hopper/label", "/e/%C3%BC%20x"])
    def test_is_the_same_file_whatever_it_shows(self, browser, path):
        response = browser.get(path)
        assert "built" in response.text
        assert response.headers["content-type"].startswith("text/html")
        assert response.headers["cache-control"] == "no-cache"

    def test_that_was_not_built_says_how_to_build_it(self, browser, static):
        (static / "index.html").unlink()
        response = browser.get("/")
        assert response.status_code == 503
        assert "make page" in response.text

    def test_can_be_asked_about_without_being_sent(self, browser):
        assert browser.head("/").status_code == 200


class TestAssets:
    def test_are_sent_for_good(self, browser):
        response = browser.get("/assets/page-1a2b.js")
        assert response.text.startswith("export")
        assert response.headers["content-type"].startswith("text/javascript")
        assert "immutable" in response.headers["cache-control"]

    def test_are_compressed_on_the_wire(self, browser):
        response = browser.get("/assets/page-1a2b.js", headers={"Accept-Encoding": "gzip"})
        assert response.headers["content-encoding"] == "gzip"

    @pytest.mark.parametrize(
        "name",
        [
            "../index.html",
            "..%2f..%2fsecret.js",
            "%2e%2e/%2e%2e/secret.js",
            "..%5c..%5csecret.js",
            "....//secret.js",
            "%2Fetc%2Fpasswd.js",
            "/secret.js",
            "page-1a2b.js%00.js",
            "page-1a2b.js/",
            "page-1a2b.js%2f..",
            ".hidden.js",
            "",
            "nothing.js",
            "x" * 5000 + ".js",
            "%FF.js",
            "link.js",
        ],
    )
    def test_nothing_outside_their_folder_can_be_reached(self, browser, tmp_path, name):
        response = browser.get(f"http://testserver/assets/{name}")
        assert_problem(response, 404)

    def test_a_file_of_another_kind_is_not_sent(self, browser, static):
        (static / "assets" / "notes.txt").write_text("mine")
        assert_problem(browser.get("/assets/notes.txt"), 404)

    def test_a_folder_is_no_file(self, browser, static):
        (static / "assets" / "folder.js").mkdir()
        assert_problem(browser.get("/assets/folder.js"), 404)

    def test_without_a_build_are_not_there(self, browser, static):
        (static / "assets" / "page-1a2b.js").unlink()
        (static / "assets").rmdir()
        assert_problem(browser.get("/assets/page-1a2b.js"), 404)


class TestDocumentation:
    def test_names_every_operation_and_shape(self, program):
        schema = program.get("/api/openapi.json").json()
        shown = program.get("/api/docs").text
        assert len(schema["paths"]) > 30
        for path in schema["paths"]:
            assert path in shown
        assert {
            "Comparison",
            "Clip",
            "Progress",
            "ExperimentSummary",
            "Episode",
            "LabelBatch",
        } <= set(schema["components"]["schemas"])

    def test_says_what_a_label_looks_like(self, program):
        schema = program.get("/api/openapi.json").json()
        label = schema["components"]["schemas"]["LabelSubmission"]
        assert set(label["properties"]) == {
            "request_id",
            "comparison_id",
            "answer",
            "lease",
            "left_hash",
            "response_ms",
            "details",
        }

    def test_loads_nothing_from_elsewhere(self, program):
        shown = program.get("/api/docs").text
        assert re.findall(r"(?:src|href)=\"([^\"]+)\"", shown) == ["/api/openapi.json"]
        assert "<script" not in shown

    def test_is_styled_by_what_the_browser_is_told_to_allow(self, program):
        response = program.get("/api/docs")
        assert "style-src 'self' 'sha256-" in response.headers["content-security-policy"]
        assert "style=" not in response.text
