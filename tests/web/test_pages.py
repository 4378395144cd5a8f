"""Built page, assets and API documentation."""

import gzip

import pytest

from tests.web.conftest import HTML, assert_problem


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


class TestErrorPages:
    def test_unknown_address_returns_page_to_browser_and_problem_to_program(self, browser):
        shown = browser.get("/no-such-page", headers=HTML)
        assert shown.status_code == 404
        assert shown.headers["content-type"].startswith("text/html")
        assert "Not found" in shown.text
        assert '<a href="/">' in shown.text
        assert_problem(browser.get("/no-such-page"), 404)

    def test_markup_in_address_is_escaped(self, browser):
        shown = browser.get("/api/v1/clips/%3Cscript%3E", headers=HTML)
        assert shown.status_code == 404
        assert "<script" not in shown.text


class TestAssets:
    def test_assets_are_immutable(self, browser):
        response = browser.get("/assets/page-1a2b.js")
        assert response.text.startswith("export")
        assert response.headers["content-type"].startswith("text/javascript")
        assert "immutable" in response.headers["cache-control"]

    def test_asset_is_sent_as_compressed_by_the_build(self, browser, static):
        compressed = gzip.compress(b"export {};" * 200)
        (static / "assets" / "page-1a2b.js.gz").write_bytes(compressed)
        for accepted, num_bytes in (("gzip", len(compressed)), ("identity", 2_000)):
            response = browser.get("/assets/page-1a2b.js", headers={"Accept-Encoding": accepted})
            assert response.text == "export {};" * 200
            assert response.headers["content-type"].startswith("text/javascript")
            assert int(response.headers["content-length"]) == num_bytes
            assert response.headers["vary"] == "Accept-Encoding"
        assert browser.get("/assets/page-1a2b.js.gz").status_code == 404

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
