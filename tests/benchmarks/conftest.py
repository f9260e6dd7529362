import sys
from pathlib import Path

# The tiny datasets are shared with the tests of fedhv.data.
sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
