"""What wrote the folder beside it: TensorFlow Datasets 4.9.10, in an environment of its own.

pip install tensorflow-cpu tensorflow-datasets
python -c "import toy; toy.Toy(data_dir='.').download_and_prepare()"
"""

import numpy as np
import tensorflow_datasets as tfds

F = tfds.features
SEEN = {
    "state": F.Tensor(shape=(3,), dtype=np.float64),
    "count": F.Scalar(dtype=np.int32),
    "image": F.Image(shape=(8, 8, 3)),
    "zipped": F.Tensor(shape=(2,), dtype=np.float32, encoding="zlib"),
    "raw": F.Tensor(shape=(2,), dtype=np.float32, encoding="bytes"),
}
STEP = {
    "observation": F.FeaturesDict(SEEN),
    "action": F.Tensor(shape=(2,), dtype=np.float32),
    "reward": F.Scalar(dtype=np.float32),
    "discount": F.Scalar(dtype=np.float32),
    "is_first": F.Scalar(dtype=np.bool_),
    "is_last": F.Scalar(dtype=np.bool_),
    "is_terminal": F.Scalar(dtype=np.bool_),
    "language": F.Text(),
    "kind": F.ClassLabel(num_classes=3),
}


class Toy(tfds.core.GeneratorBasedBuilder):
    """Episode e has 3 + e steps and the last observation; even ones end, odd ones are cut."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        whole = {"steps": F.Dataset(STEP), "episode_id": F.Scalar(dtype=np.int64), "path": F.Text()}
        return tfds.core.DatasetInfo(builder=self, features=F.FeaturesDict(whole))

    def _split_generators(self, manager):
        return {"train": self._generate_examples(0, 5), "val": self._generate_examples(5, 7)}

    def _generate_examples(self, low, high):
        for episode in range(low, high):
            steps = [_step(episode, time) for time in range(episode + 4)]
            yield episode, {"steps": steps, "episode_id": episode, "path": "x"}


def _step(episode, time):
    over = time == episode + 3
    seen = {
        "state": np.arange(3) + 10.0 * episode + time / 8,
        "count": time,
        "image": np.zeros((8, 8, 3), np.uint8),
        "zipped": np.array([time, episode], np.float32),
        "raw": np.array([episode, time], np.float32),
    }
    return {
        "observation": seen,
        "action": np.array([time / 10, -episode / 10], np.float32),
        "reward": np.float32(0.0 if over else time),
        "discount": np.float32(1.0),
        "is_first": time == 0,
        "is_last": over,
        "is_terminal": over and episode % 2 == 0,
        "language": "hi",
        "kind": episode % 3,
    }
