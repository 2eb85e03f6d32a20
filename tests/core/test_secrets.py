"""What counts as a credential, and what does not; how one leaves the options of a study and comes back."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator

import pytest

from fairtrial.core.cautions import REDACTED_CONFIG, REDACTED_VALUES
from fairtrial.core.errors import Interrupted, UserError
from fairtrial.core.secrets import (
    BLOCK,
    LONGEST_SECRET,
    Concealer,
    conceal,
    find_secrets,
    masked,
    redact,
    redact_command,
    redact_words,
    references,
    require_variables,
    reveal,
    scan,
)

A36 = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
"""36 letters and digits."""
CREDENTIALS = {
    f"ghp_{A36}": "github-token",
    f"github_pat_11ABCDEFG0{A36}_{A36}": "github-token",
    f"hf_{A36[:34]}": "huggingface-token",
    f"sk-ant-api03-{A36}-{A36}AA": "anthropic-key",
    f"sk-proj-{A36}_{A36}": "openai-key",
    f"sk-{A36}{A36[:12]}": "openai-key",
    "AKIAIOSFODNN7EXAMPLE": "aws-access-key",
    f"xoxb-123456789012-1234567890123-{A36[:24]}": "slack-token",
    f"https://hooks.slack.com/services/T00000000/B00000000/{A36[:24]}": "slack-token",
    "local-" + "0123456789abcdef01234567" + "89abcdef01234567": "wandb-key",
    f"AIza{A36[:35]}": "google-key",
    f"glpat-{A36[:20]}": "gitlab-token",
    f"npm_{A36}": "npm-token",
    f"sk_live_{A36[:24]}": "stripe-key",
    f"eyJ{A36[:20]}.eyJ{A36[:20]}.{A36[:30]}": "jwt",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----": "private-key",
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEI\n-----END PRIVATE KEY-----": "private-key",
    f"https://b.s3.amazonaws.com/k?X-Amz-Expires=9&X-Amz-Signature={A36}": "signed-url",
    f"https://b.s3.amazonaws.com/k?X-Amz-Security-Token={A36}&x=1": "signed-url",
    f"https://a.blob.core.windows.net/c?sv=2024&sig={A36[:30]}%3D": "signed-url",
    f"https://storage.googleapis.com/b/o?GoogleAccessId=a&Signature={A36}": "signed-url",
    "postgres://trainer:hunter2@db.internal/runs": "url-password",
    "https://x-access-token:abc@github.com/a/b": "url-password",
    "Authorization: Bearer abc123def456": "authorization-header",
    '"authorization": "Basic dXNlcjpwYXNzd29yZDE="': "authorization-header",
    "curl -H bearer abcdef0123456789abcd": "authorization-header",
    'password = "hunter2"': "named-secret",
    "password: hunter2": "named-secret",
    'password = "hunter2key"': "named-secret",
    '"api_key": "correct-horse"': "named-secret",
    "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567": "named-secret",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY1": "named-secret",
    "prog --password hunter2 --lr 0.1": "named-secret",
    "prog --db-password=hunter2": "named-secret",
    '["--api-key", "hunter2"]': "named-secret",
    '["--hub-token",\n      "abcd1234efgh"]': "named-secret",
    '{"argv": "[\\"--password\\", \\"hunter2\\"]"}': "named-secret",
    "token=abc123def456": "named-secret",
}
HARMLESS = [
    REDACTED_VALUES.fill(names="customer_key2024, db_password1", variables="A")["text"],
    REDACTED_CONFIG.fill(names="customer_key2024, db_password1")["text"],
    "https://example.org/?sig=short&Signature=none",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    '"sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"',
    "commit 99749bf06f14f7d2ee06aecd1accc8b141a590aa",
    '"fingerprint": "99749bf06f14f7d2ee06aecd1accc8b141a590aa"',
    '"signature": "' + "0f" * 64 + '"',
    "/home/me/project/secrets/run.sh",
    "--lr 0.1 --seed 1072 --batch-size 64",
    "tokens=4096 max_tokens=128 num_tokens: 17000000 tokens_per_second 12345678",
    '"token": 12, "tokenizer": "gpt2", "eos_token": "</s>", "pad_token": "[PAD]", "unk_token": "<unk>"',
    "--eos-token <eos> --token cls --tokenizer bert-base-uncased",
    "private_key=/home/me/.ssh/id_ed25519 --api-key-file keys.json",
    "password = getpass.getpass()",
    'password = os.environ["DB_PASSWORD"]',
    "api_key=args.api_key, password=None, --password PASSWORD, password: str",
    "def login(password: str = '', token: str | None = None) -> None:",
    "--token {env:HF_TOKEN} --password {pw} token=${HF_TOKEN} --token $HF_TOKEN",
    "http://localhost:4318/v1/logs s3://bucket/key https://host:8080/a@b git@github.com:a/b.git",
    "risk-free task-1234567890123456789012345678901234 disk-image",
    "local-run hf_transfer npm_config AKIAshort sk-learn sk-image-0.22.0",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----",
    "token=entity_mask2_token access_key = 'aws_access_key_id'",
    "secret_santa=1 secretary=abc12345 credentialed: abc12345",
]


@pytest.fixture(autouse=True)
def _clean_environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]


@pytest.mark.parametrize(("text", "kind"), CREDENTIALS.items(), ids=lambda each: str(each)[:24])
def test_a_credential_is_found_once_and_its_value_does_not_survive(text: str, kind: str) -> None:
    found = find_secrets(f"before {text} after".encode())
    assert [each.kind for each in found] == [kind]
    secret = f"before {text} after".encode()[found[0].start : found[0].end].decode()
    assert secret not in redact(f"before {text} after")
    assert len(masked(kind, secret.encode())) <= 5


@pytest.mark.parametrize("text", HARMLESS, ids=lambda each: each[:24])
def test_what_is_harmless_raises_no_alarm(text: str) -> None:
    assert find_secrets(text.encode()) == []
    assert redact(text) == text


def test_a_file_is_scanned_in_blocks_and_every_credential_is_found_with_its_line() -> None:
    """Credentials stand at, before and across the borders of blocks."""
    places = [10, BLOCK - LONGEST_SECRET - 70, BLOCK - LONGEST_SECRET, BLOCK - 60, BLOCK - 4, BLOCK + 50, 2 * BLOCK - 1]
    content = bytearray(b"x=1.5 y=2\n" * (BLOCK // 4))
    for place in places:
        content[place : place + 42] = f"\nghp_{A36} ".encode()
    found = list(scan(io.BytesIO(bytes(content))))
    assert [each.start for _, each, _ in found] == [place + 1 for place in places]
    assert [line for line, _, _ in found] == [bytes(content).count(b"\n", 0, place + 1) + 1 for place in places]
    assert {secret for _, _, secret in found} == {f"ghp_{A36}".encode()}


@pytest.mark.slow
def test_a_border_of_blocks_makes_no_credential_of_what_is_none() -> None:
    """`task-…` is harmless, and must be so too where a block begins at its `sk-`."""
    word = b"task-" + b"a1" * 20 + b" "
    for before in range(LONGEST_SECRET + 60, LONGEST_SECRET + 70):
        content = b" " * (BLOCK - before - 2) + word + b" " * BLOCK
        assert list(scan(io.BytesIO(content))) == []


def test_binary_content_is_searched_for_formats_alone() -> None:
    assert [each.kind for each in find_secrets(b"\0\1password=hunter2\0" + f"ghp_{A36}".encode())] == ["github-token"]


def test_scanning_is_fast() -> None:
    """8 MB of metric lines, whose names hold words such as token; generous for a machine that is busy."""
    content = b'{"step": 12345, "tokens_per_second": 123456.7, "loss": 0.123456, "_time": 17.25}\n' * 100_000
    begun = time.process_time()
    assert list(scan(io.BytesIO(content))) == []
    assert time.process_time() - begun < 2


# Options


def test_a_secret_leaves_the_options_and_comes_back() -> None:
    given = {
        "argv": ["prog", "--token", f"hf_{A36}", "--lr", "{lr}", "--db-password=hunter2", "--url=https://u:pw1@h/x"],
        "values": {"lr": "0.1"},
    }
    kept = conceal(given)
    assert "hunter2" not in str(kept) and A36 not in str(kept) and "pw1" not in str(kept)
    assert kept["argv"][2] == "{env:FAIRTRIAL_SECRET_TOKEN}"
    assert kept["argv"][5] == "--db-password={env:FAIRTRIAL_SECRET_DB_PASSWORD}"
    assert reveal(kept) == given
    assert conceal(kept) == kept


def test_a_placeholder_after_a_flag_that_takes_a_secret_has_a_secret_value() -> None:
    kept = conceal({"values": {"pw": "hunter2", "lr": "1"}, "argv": ["prog", "--password", "{pw}", "{lr}"]})
    assert kept["values"] == {"pw": "{env:FAIRTRIAL_SECRET_PW}", "lr": "1"}
    assert os.environ["FAIRTRIAL_SECRET_PW"] == "hunter2"


def test_a_declared_name_is_secret_whatever_its_value() -> None:
    kept = conceal(
        {"values": {"customer": "acme"}, "argv": ["prog", "--site", "berlin", "{customer}"]}, ["site", "customer"]
    )
    assert "acme" not in str(kept) and "berlin" not in str(kept)


def test_a_declared_name_that_is_nowhere_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'customer'"):
        conceal({"values": {"customer": "acme"}}, ["custmer"])


def test_the_value_of_a_secret_variable_is_recorded_as_that_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell has filled in $HF_TOKEN before we see it."""
    monkeypatch.setenv("HF_TOKEN", "hf-plain-9876")
    monkeypatch.setenv("CUSTOMER", "acme")
    kept = conceal({"argv": ["prog", "-t", "hf-plain-9876", "--for=acme"]}, ["CUSTOMER"])
    assert kept["argv"] == ["prog", "-t", "{env:HF_TOKEN}", "--for={env:CUSTOMER}"]


def test_a_weak_name_with_an_ordinary_value_is_not_secret() -> None:
    given = {"token": "cls", "eos_token": "</s>", "argv": ["prog", "--token", "mean", "--secret-dim", "64"]}
    assert conceal(given) == given


def test_two_secrets_of_one_name_have_two_variables() -> None:
    kept = conceal({"argv": ["prog", "--token", f"hf_{A36}", "--token", f"ghp_{A36}"]})
    assert references(kept) == ["FAIRTRIAL_SECRET_TOKEN", "FAIRTRIAL_SECRET_TOKEN_2"]


def test_ordinary_options_are_not_touched() -> None:
    given = {
        "argv": ["python", "train.py", "--lr", "{lr}", "--seed", "{seed}", "--out", "{run_dir}/x.jsonl", "--n", 3],
        "values": {"lr": "0.1"}, "steps": 100, "benchmark": {"random_score": 0.5}, "model": None, "flag": True,
    }  # fmt: skip
    assert conceal(given) == given
    assert not Concealer().values


def test_a_missing_variable_is_one_sentence() -> None:
    with pytest.raises(UserError, match="the environment variable NOT_SET_HERE is not set"):
        require_variables([{"argv": ["prog", "{env:NOT_SET_HERE}"]}])
    with pytest.raises(UserError, match="the secret 'token' was not recorded"):
        require_variables([{"argv": ["prog", "{env:FAIRTRIAL_SECRET_TOKEN}"]}])
    with pytest.raises(Interrupted, match="NOT_SET_HERE"):
        reveal("{env:NOT_SET_HERE}")
    assert references("{{env:NOT_SET_HERE}}") == []


def test_a_command_line_is_written_down_without_its_secrets() -> None:
    words = [
        "launch",
        "command",
        "--variant",
        "a:lr=1,api_key=hunter2",
        "--",
        "prog",
        "--password",
        "hunter2",
        "{api_key}",
    ]
    shown = redact_words(words)
    assert "hunter2" not in str(shown)
    assert shown[:3] == words[:3]
    assert "hunter2" not in redact_command("launch command -- prog --password hunter2")
    assert redact_command("launch  command -- prog  --lr 1") == "launch  command -- prog  --lr 1"
