"""Files as artifacts."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

from .._stored import drop, object_url, object_url_of, spill
from .artifact import Artifact


class FileArtifact(Artifact):
    """An artifact that is one file."""

    type = "file"

    _defaults = {"content_type": None, "filename": None}

    @classmethod
    def put(
        cls,
        id: str,
        description: Optional[str] = None,
        file_path: Optional[str] = None,
        content_type: Optional[str] = None,
        metadata: Optional[Dict[str, Any]] = None,
        **more: Any,
    ) -> "FileArtifact":
        """Stores a file of this machine as a new version of an artifact."""
        path = os.path.abspath(str(file_path if file_path is not None else more.pop("path", "")))
        if not os.path.isfile(path):
            raise FileNotFoundError(f"there is no file {os.path.basename(path) or path} to store as the artifact {id}")
        name = more.pop("filename", None) or os.path.basename(path)
        made = cls.store(id, {"description": description, "filename": name, "content_type": content_type, "metadata": metadata, **more}, [{"path": name, "file": path}])
        made.__dict__["_url"] = object_url_of(path)
        return made

    @classmethod
    def put_bytes(
        cls,
        id: str,
        content: bytes = b"",
        description: Optional[str] = None,
        filename: Optional[str] = None,
        content_type: Optional[str] = None,
        metadata: Optional[Dict[str, Any]] = None,
    ) -> "FileArtifact":
        """Stores bytes as a new version of an artifact."""
        name = os.path.basename(filename or id)
        path = spill(content, name)
        try:
            made = cls.store(id, {"description": description, "filename": name, "content_type": content_type, "metadata": metadata}, [{"path": name, "file": path}])
        finally:
            drop(path)
        made.__dict__["_url"] = object_url(content)
        return made

    def load(self) -> bytes:
        """Its bytes."""
        files = self.fetch()
        if len(files) != 1:
            raise ValueError(f"the artifact {self.id} has {len(files)} files and not one")
        return next(iter(files.values()))

    @property
    def object_url(self) -> str:
        """The address of the object that holds its bytes."""
        url = self.__dict__.get("_url")
        if url is None:
            url = self.__dict__["_url"] = object_url(self.load())
        return str(url)
