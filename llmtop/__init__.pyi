from llmtop.errors import FileError as FileError
from llmtop.python.frame import Frame as Frame
from llmtop.python.loading import load as load
from llmtop.python.tables import TABLES as TABLES
from llmtop.python.tables import table as table

__version__: str
