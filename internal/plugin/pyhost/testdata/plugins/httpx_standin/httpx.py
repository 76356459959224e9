"""Stands in for httpx in tests: the classes by which plugins know errors, and nothing that sends."""


class Request:
    def __init__(self, method, url):
        self.method, self.url = method, url


class Response:
    def __init__(self, status_code, headers=None, content=b"", request=None):
        self.status_code, self.headers, self.content, self.request = status_code, headers or {}, content, request

    @property
    def text(self):
        return self.content.decode("utf-8", "replace")

    def json(self):
        import json

        return json.loads(self.content)


class HTTPError(Exception):
    pass


class HTTPStatusError(HTTPError):
    def __init__(self, message, *, request, response):
        super().__init__(message)
        self.request, self.response = request, response


class TransportError(HTTPError):
    pass


class ConnectError(TransportError):
    pass


class ReadTimeout(TransportError):
    pass
