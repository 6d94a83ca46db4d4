"""MixingTrainer: the loss that is trained, evaluation as it was, and what is saved."""

import math
import os

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset
from transform_kinds import CLASSES, KINDS, seeded

from zetamix import ZetaMix, ZetaMixup, rules

# before transformers is imported: nothing here is on the hub
os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from transformers import (  # noqa: E402
    BertConfig,
    BertForSequenceClassification,
    ResNetConfig,
    ResNetForImageClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

from zetamix.integrations.transformers import MixingTrainer  # noqa: E402

pytestmark = [
    # accelerate pins memory, where there is a device for it
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true"),
]


class Rows(Dataset):
    """The rows of some tensors, as dicts."""

    def __init__(self, **tensors):
        self.tensors = tensors

    def __len__(self):
        return len(next(iter(self.tensors.values())))

    def __getitem__(self, index):
        return {name: tensor[index] for name, tensor in self.tensors.items()}


LABELS = torch.arange(12) % CLASSES
IMAGES = Rows(pixel_values=torch.randn(12, 3, 8, 8, generator=seeded(1)), labels=LABELS)


TINY = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


def tiny_vit(zeroed=False, **options):
    torch.manual_seed(0)
    config = ViTConfig(image_size=8, patch_size=4, num_labels=CLASSES, **TINY, **options)
    model = ViTForImageClassification(config)
    if zeroed:
        nn.init.zeros_(model.classifier.weight)
    return model


def tiny_resnet():
    torch.manual_seed(0)
    size = {"embedding_size": 4, "hidden_sizes": [4], "depths": [1]}
    return ResNetForImageClassification(ResNetConfig(num_labels=CLASSES, **size))


def tiny_bert():
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(vocab_size=20, num_labels=CLASSES, **TINY))


class Recorder(MixingTrainer):
    """Keeps what the model and the loss are called with, and the loss of every step."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen, self.losses, self.targets = [], [], []
        self.model.register_forward_pre_hook(self._record, with_kwargs=True)

    def _record(self, model, args, kwargs):
        self.seen.append((model.training, kwargs))

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.losses.append(float(loss))
        return loss

    def loss(self, outputs, labels, num_items_in_batch):
        self.targets.append(labels)
        return F.cross_entropy(outputs["logits"], labels)


def arguments(folder, **options):
    options = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 5,
        "per_device_eval_batch_size": 5,
        "learning_rate": 0.1,
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "train_sampling_strategy": "sequential",
        "dataloader_pin_memory": False,
        **options,
    }
    return TrainingArguments(output_dir=str(folder), **options)


def recorder(folder, model, transform, data=IMAGES, **options):
    return Recorder(
        model=model,
        args=arguments(folder, **options),
        train_dataset=data,
        eval_dataset=data,
        transform=transform,
    )


def batches(data=IMAGES, size=5):
    for first in range(0, len(data), size):
        yield {name: tensor[first : first + size] for name, tensor in data.tensors.items()}


def assert_same(tensors, expected):
    torch.testing.assert_close(list(tensors), list(expected), rtol=0, atol=0)


def plain_loop(transform, epochs=2):
    for epoch in range(epochs):
        transform.set_epoch(epoch, epochs)
        yield from (transform(b["pixel_values"], b["labels"]) for b in batches())


def assert_trained_on(trainer, expected):
    images, targets = zip(*expected, strict=True)
    assert_same((kwargs["pixel_values"] for _, kwargs in trainer.seen), images)
    assert_same(trainer.targets, targets)


@pytest.mark.parametrize("kind", KINDS)
def test_training_sees_the_batches_of_a_plain_loop(kind, tmp_path):
    trainer = recorder(tmp_path, tiny_vit(), KINDS[kind](generator=seeded()))
    trainer.compute_loss_func = trainer.loss
    trainer.train()
    assert_trained_on(trainer, plain_loop(KINDS[kind](generator=seeded())))


@pytest.mark.parametrize("model", [tiny_vit, tiny_resnet], ids=["vit", "resnet"])
def test_losses_are_those_of_a_plain_loop(model, tmp_path):
    mix, net = KINDS["switch"](generator=seeded()), model()
    trainer = recorder(tmp_path, net, mix, optim="sgd", lr_scheduler_type="constant")
    trainer.train()
    mix, plain = KINDS["switch"](generator=seeded()), model().train()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    losses = []
    for images, targets in plain_loop(mix):
        loss = F.cross_entropy(plain(pixel_values=images).logits, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert trainer.losses == pytest.approx(losses, rel=1e-5)


def test_the_loss_is_cross_entropy_and_the_saved_model_single_label(tmp_path):
    """Given soft labels, the model itself would begin at ln 2, with binary cross entropy."""
    model = tiny_vit(zeroed=True)
    assert model.config.problem_type is None
    trainer = recorder(tmp_path, model, KINDS["zetamix"]())
    trainer.train()
    assert trainer.losses[0] == pytest.approx(math.log(CLASSES), rel=1e-5)
    trainer.save_model()
    again = ViTForImageClassification.from_pretrained(tmp_path)
    assert again.config.problem_type == "single_label_classification"
    batch = next(batches())
    expected = model.eval()(**batch)
    assert_same([again(**batch).logits, again(**batch).loss], [expected.logits, expected.loss])


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_evaluation_and_prediction_are_those_of_trainer(smoothing, tmp_path):
    options = {"label_smoothing_factor": smoothing}
    trainer = recorder(tmp_path, tiny_vit(), KINDS["zetamix"](), **options)
    trainer.train()
    trainer.seen.clear()
    loss = trainer.evaluate()["eval_loss"]
    assert not any(training for training, _ in trainer.seen)
    assert_same(
        (kw["pixel_values"] for _, kw in trainer.seen), [b["pixel_values"] for b in batches()]
    )
    plain = Trainer(model=trainer.model, args=arguments(tmp_path, **options), eval_dataset=IMAGES)
    assert loss == plain.evaluate()["eval_loss"]
    predicted, expected = trainer.predict(IMAGES), plain.predict(IMAGES)
    assert (predicted.predictions == expected.predictions).all()
    assert (predicted.label_ids == LABELS.numpy()).all()


def test_smoothing_is_applied_to_the_training_loss(tmp_path):
    mix = KINDS["zeta"](generator=seeded())
    trainer = recorder(tmp_path, tiny_vit(), mix, label_smoothing_factor=0.3)
    trainer.train()
    images, targets = next(plain_loop(KINDS["zeta"](generator=seeded())))
    logits = tiny_vit()(pixel_values=images).logits
    expected = F.cross_entropy(logits, targets, label_smoothing=0.3)
    assert trainer.losses[0] == pytest.approx(float(expected.detach()), rel=1e-5)


@pytest.mark.parametrize("model", [tiny_vit, tiny_resnet], ids=["vit", "resnet"])
@pytest.mark.parametrize("counted", [True, False])
def test_accumulated_batches_count_by_their_samples(model, counted, tmp_path):
    """Or alike, where Trainer does not count samples because the model takes no loss arguments."""
    off = KINDS["zetamix"](p=0.0)
    trainer = recorder(
        tmp_path, model(), off, gradient_accumulation_steps=3, label_smoothing_factor=0.2
    )
    assert trainer.model_accepts_loss_kwargs
    trainer.model_accepts_loss_kwargs = counted
    trainer.train()
    net = model().train()
    for batch, loss in zip(batches(), trainer.losses, strict=False):
        labels = batch.pop("labels")
        mean = F.cross_entropy(net(**batch).logits, labels, label_smoothing=0.2)
        share = len(labels) / 12 if counted else 1 / 3
        assert loss == pytest.approx(float(mean.detach()) * share, rel=1e-5)


def test_training_resumes_with_the_plans_that_would_have_come_next(tmp_path):
    options = {"save_strategy": "epoch", "num_train_epochs": 3}
    whole = recorder(tmp_path, tiny_resnet(), KINDS["zetamix"](generator=seeded(3)), **options)
    whole.train()
    images = [kwargs["pixel_values"] for _, kwargs in whole.seen]
    for steps in (3, 6):
        # another seed, which the checkpoint makes irrelevant
        again = recorder(tmp_path, tiny_resnet(), KINDS["zetamix"](generator=seeded(4)), **options)
        again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{steps}"))
        assert_same((kwargs["pixel_values"] for _, kwargs in again.seen), images[steps:])
        assert again.losses == whole.losses[steps:]


def test_the_last_checkpoint_is_found_and_one_without_a_state_warns(tmp_path):
    options = {"save_strategy": "epoch", "num_train_epochs": 1}
    recorder(tmp_path, tiny_vit(), KINDS["switch"](generator=seeded(3)), **options).train()
    again = recorder(tmp_path, tiny_vit(), KINDS["switch"](generator=seeded(4)), **options)
    again.train(resume_from_checkpoint=True)
    state = torch.load(tmp_path / "checkpoint-3" / "zetamix_0.pt", weights_only=True)
    assert torch.equal(again.transform.generator.get_state(), state["generator"])
    (tmp_path / "checkpoint-3" / "zetamix_0.pt").unlink()
    other = recorder(tmp_path, tiny_vit(), KINDS["switch"](), **options)
    with pytest.warns(UserWarning, match=r"has no zetamix_0\.pt: training will not resume"):
        other.train(resume_from_checkpoint=True)


def gamma_of(epoch):
    return 2.0 + epoch


def test_the_epoch_is_set(tmp_path):
    mix = ZetaMixup(num_classes=CLASSES, gamma=gamma_of)
    gammas = []
    trainer = recorder(tmp_path, tiny_vit(), mix, num_train_epochs=3)
    trainer.model.register_forward_pre_hook(lambda *_: gammas.append(mix.gamma))
    trainer.train()
    assert gammas == [2.0] * 3 + [3.0] * 3 + [4.0] * 3


@pytest.mark.parametrize("until", [0.8, 1])
def test_mixing_ends_as_in_a_plain_loop_or_where_a_callback_switches_it_off(until, tmp_path):
    mix = ZetaMix(num_classes=CLASSES, until=until, generator=seeded())

    class EndMixing(TrainerCallback):
        def on_epoch_begin(self, args, state, control, **kwargs):
            mix.enabled = state.epoch < 0.8 * args.num_train_epochs

    trainer = recorder(tmp_path, tiny_vit(), mix, num_train_epochs=5)
    trainer.compute_loss_func = trainer.loss
    if until == 1:
        trainer.add_callback(EndMixing())
    trainer.train()
    hard = [(b["pixel_values"], F.one_hot(b["labels"], CLASSES).float()) for b in batches()]
    mixed = plain_loop(ZetaMix(num_classes=CLASSES, until=1, generator=seeded()), epochs=4)
    assert_trained_on(trainer, [*mixed, *hard])


def test_where_steps_end_training_steps_are_counted(tmp_path):
    trainer = recorder(tmp_path, tiny_vit(), ZetaMix(num_classes=CLASSES, until=0.6), max_steps=6)
    trainer.compute_loss_func = trainer.loss
    trainer.train()
    mixed = [bool((targets.amax(1) < 1).any()) for targets in trainer.targets]
    assert mixed == [True] * 4 + [False] * 2


def test_embeddings_are_blended_and_masks_stay(tmp_path):
    mask = torch.ones(12, 6, dtype=torch.long)
    mask[::2, 4:] = 0
    embeddings = torch.randn(12, 6, 8, generator=seeded(2))
    data = Rows(inputs_embeds=embeddings, attention_mask=mask, labels=LABELS)
    ours, plain = (ZetaMix(num_classes=CLASSES, until=1, generator=seeded()) for _ in range(2))
    trainer = recorder(tmp_path, tiny_bert(), ours, data)
    trainer.train()
    mixed = [plain(b["inputs_embeds"], b["labels"])[0] for _ in range(2) for b in batches(data)]
    assert_same((kwargs["inputs_embeds"] for _, kwargs in trainer.seen), mixed)
    assert_same((kw["attention_mask"] for _, kw in trainer.seen[:3]), mask.split(5))
    tokens = Rows(input_ids=torch.randint(20, (12, 6)), labels=LABELS)
    with pytest.raises(TypeError, match=r"got input_ids, labels\. Token ids cannot be mixed"):
        recorder(tmp_path, tiny_bert(), ours, tokens).train()


def test_multi_label_targets_stay_with_the_loss_of_the_model(tmp_path):
    hot = F.one_hot(LABELS, CLASSES).float()
    data = Rows(pixel_values=IMAGES.tensors["pixel_values"], labels=hot)
    for problem, first in [
        ("multi_label_classification", math.log(2)),
        ("single_label_classification", math.log(CLASSES)),
    ]:
        model = tiny_vit(zeroed=True, problem_type=problem)
        trainer = recorder(tmp_path, model, KINDS["zeta"](), data)
        trainer.train()
        assert trainer.losses[0] == pytest.approx(first, rel=1e-5)
        assert model.config.problem_type == problem


def test_rules_get_the_whole_batch(tmp_path):
    by_rule = {"pixel_values": rules.Blend(), "labels": rules.OneHot(CLASSES)}
    model = tiny_vit(zeroed=True)
    trainer = recorder(tmp_path, model, ZetaMix(rules=by_rule, generator=seeded()))
    trainer.train()
    mix = ZetaMix(rules=by_rule, generator=seeded())
    assert_same([trainer.seen[0][1]["pixel_values"]], [mix(next(batches()))["pixel_values"]])
    assert trainer.losses[0] == pytest.approx(math.log(CLASSES), rel=1e-5)


def test_anything_but_a_transform_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"transform must be one of .*, got Linear"):
        recorder(tmp_path, tiny_vit(), nn.Linear(1, 1))
