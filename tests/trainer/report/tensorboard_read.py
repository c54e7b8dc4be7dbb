"""Event files of ours in the hands of TensorBoard itself (pip install tensorboard).

tensorboard_read.py WRITE_EVENTS. Uses the first of $FSHARD_PYTHON, this Python and python3 that has the module; exits 77,
and says so, where none has.
"""
import io
import os
import shutil
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    if not os.environ.get("TENSORBOARD_READ_CHILD"):
        environment = dict(os.environ, TENSORBOARD_READ_CHILD="1")
        for python in (os.environ.get("FSHARD_PYTHON"), shutil.which("python3")):
            if python and os.path.exists(python):
                status = subprocess.run([python] + sys.argv, env=environment).returncode
                if status != 77:
                    sys.exit(status)
        print("left out: no module tensorboard (pip install tensorboard; FSHARD_PYTHON names the Python that has it)")
    sys.exit(77)


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        assert len(os.listdir(folder)) == 2
        events = EventAccumulator(folder, size_guidance={"scalars": 0, "images": 0})
        events.Reload()
        tags = events.Tags()
        assert tags["scalars"] == ["train/loss"], tags
        assert tags["images"] == ["val/samples"], tags
        points = [(event.step, event.value) for event in events.Scalars("train/loss")]
        # Steps 3 to 5 of the first part are superseded by those of the second.
        assert points == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 103.0), (4, 104.0), (5, 105.0)], points
        images = events.Images("val/samples")
        assert [(i.step, i.width, i.height) for i in images] == [(5, 12, 8)], images
        assert images[0].encoded_image_string[:3] == b"\xff\xd8\xff"
        try:
            from PIL import Image

            assert Image.open(io.BytesIO(images[0].encoded_image_string)).size == (12, 8)
        except ImportError:
            print("left out: no module PIL; the image was not decoded")
    import tensorboard.version

    print("tensorboard", tensorboard.version.VERSION, "reads what is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
