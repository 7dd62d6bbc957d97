"""Runs deploy/python/three_pictures.ipynb from its first cell to its last.

    notebook_test.py HEADROOM

Exit code 77: nbclient or ipykernel, which run notebooks, is not installed.
"""

import os
import pathlib
import re
import sys
import tempfile

try:
    import ipykernel  # the kernel that nbclient starts
    import nbclient
    import nbformat
except ImportError as error:
    print(f"skipped: {error.name} is not installed")
    sys.exit(77)

NOTEBOOK = pathlib.Path(__file__).resolve().parents[2] / "deploy/python/three_pictures.ipynb"


def main():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    stored = [cell for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")]
    assert not stored, "outputs are stored in the repository: clear them"
    os.environ["HEADROOM_PROGRAM"] = str(pathlib.Path(sys.argv[1]).resolve())
    os.environ["PYTHONPATH"] = str(NOTEBOOK.parent)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYTHONDIR"] = folder  # ignores the settings of this user
        nbclient.NotebookClient(notebook, timeout=500, kernel_name="python3",
                                resources={"metadata": {"path": folder}}).execute()
        printed = "".join(output.get("text", "") for cell in notebook.cells
                          if cell.cell_type == "code" for output in cell.outputs)
        print(printed)
        judged = float(re.search(r"mAP50 (\S+)", printed)[1])
        assert judged > 0.5, f"three pictures were not learnt: mAP50 {judged}"
        best = pathlib.Path(folder) / "runs/train/exp/weights"
        assert (best / "best.onnx").stat().st_size > 1 << 20
        pictures = [output for cell in notebook.cells if cell.cell_type == "code"
                    for output in cell.outputs if "image/jpeg" in output.get("data", {})]
        assert len(pictures) == 1, "the picture with boxes is not shown"


main()
