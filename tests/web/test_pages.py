"""Built page, assets and API documentation."""

import re

import pytest

from tests.web.conftest import HTML, SAME_ORIGIN, assert_problem


class TestPage:
    @pytest.mark.parametrize("path", ["/", "/e/hopper", "/e/hopper/label", "/e/%C3%BC%20x"])
    def test_every_view_gets_the_same_file(self, browser, path):
        response = browser.get(path)
        assert "built" in response.text
        assert response.headers["content-type"].startswith("text/html")
        assert response.headers["cache-control"] == "no-cache"

    def test_missing_build_explains_how_to_build(self, browser, static):
        (static / "index.html").unlink()
        response = browser.get("/")
        assert response.status_code == 503
        assert "make page" in response.text

    def test_head_request_is_accepted(self, browser):
        assert browser.head("/").status_code == 200


class TestErrorPages:
    def test_unknown_address_returns_page_to_browser_and_problem_to_program(self, browser):
        shown = browser.get("/no-such-page", headers=HTML)
        assert shown.status_code == 404
        assert shown.headers["content-type"].startswith("text/html")
        assert "Not found" in shown.text
        assert '<a href="/">' in shown.text
        assert_problem(browser.get("/no-such-page"), 404)

    @pytest.mark.parametrize("path", ["/api/v1/experiments/nothing", "/api/v1/nothing"])
    def test_browser_that_opens_an_api_address_gets_page(self, browser, path):
        shown = browser.get(path, headers=HTML)
        assert shown.status_code == 404
        assert shown.headers["content-type"].startswith("text/html")

    def test_page_of_hidden_route_equals_that_of_missing_one(self, guest):
        hidden = guest.get("/api/v1/invites", headers=HTML)
        missing = guest.get("/api/v1/nothing", headers=HTML)
        assert (hidden.status_code, hidden.content) == (missing.status_code, missing.content)

    def test_markup_in_address_is_escaped(self, browser):
        shown = browser.get("/api/v1/clips/%3Cscript%3E", headers=HTML)
        assert shown.status_code == 404
        assert "<script" not in shown.text

    def test_change_is_answered_with_problem_whatever_is_accepted(self, browser):
        assert_problem(browser.post("/no-such-page", headers=HTML | SAME_ORIGIN), 404)


class TestAssets:
    def test_assets_are_immutable(self, browser):
        response = browser.get("/assets/page-1a2b.js")
        assert response.text.startswith("export")
        assert response.headers["content-type"].startswith("text/javascript")
        assert "immutable" in response.headers["cache-control"]

    def test_assets_are_compressed_in_transit(self, browser):
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
    def test_path_outside_assets_folder_is_not_found(self, browser, tmp_path, name):
        response = browser.get(f"http://testserver/assets/{name}")
        assert_problem(response, 404)

    def test_asset_of_other_type_is_not_found(self, browser, static):
        (static / "assets" / "notes.txt").write_text("mine")
        assert_problem(browser.get("/assets/notes.txt"), 404)

    def test_folder_is_not_sent_as_asset(self, browser, static):
        (static / "assets" / "folder.js").mkdir()
        assert_problem(browser.get("/assets/folder.js"), 404)

    def test_assets_without_build_are_not_found(self, browser, static):
        (static / "assets" / "page-1a2b.js").unlink()
        (static / "assets").rmdir()
        assert_problem(browser.get("/assets/page-1a2b.js"), 404)


class TestDocumentation:
    def test_documentation_lists_every_operation_and_schema(self, program):
        schema = program.get("/api/openapi.json").json()
        text = program.get("/api/docs").text
        assert len(schema["paths"]) > 30
        for path in schema["paths"]:
            assert path in text
        assert {
            "Comparison",
            "Clip",
            "Progress",
            "ExperimentSummary",
            "Episode",
            "LabelBatch",
        } <= set(schema["components"]["schemas"])

    def test_documentation_describes_label_fields(self, program):
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

    def test_documentation_loads_no_external_resources(self, program):
        text = program.get("/api/docs").text
        assert re.findall(r"(?:src|href)=\"([^\"]+)\"", text) == ["/api/openapi.json"]
        assert "<script" not in text

    def test_documentation_style_is_allowed_by_hash(self, program):
        response = program.get("/api/docs")
        assert "style-src 'self' 'sha256-" in response.headers["content-security-policy"]
        assert "style=" not in response.text
