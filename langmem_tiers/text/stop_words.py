"""Stop words by language."""

from __future__ import annotations

STOP_WORDS = frozenset(
    """
    a about after all also am an and any are as at be because been before being but by can could did do does doing
    for from had has have he her here him his how i if in into is it its just let like me more most my no not now of
    on only or other our out over please she should so some such tell than that the their them then there these they
    this those to too up us very was we were what when where which while who why will with would you your
    """.split()
)
"""English stop words."""
CHINESE_STOP_WORDS = frozenset(
    """
    什么时候 为什么 怎么样 怎么办 什么 怎么 怎样 咋样 哪里 哪儿 哪个 哪些 哪天 哪一天 哪位
    多少 多久 时候 是谁 是不是 有没有
    我们 你们 他们 她们 它们 咱们 大家 自己 这个 那个 这些 那些 这样 那样 这么 那么 这里 那里 这边 那边
    因为 所以 但是 可是 不过 然后 如果 虽然 还是 或者 而且 已经 一个 一下 一些 一起 一点 没有 可以 就是 不是 应该
    现在 以后 以前 觉得 知道 真的 非常 特别 关于 其他
    """.split()
)
"""Chinese stop words in simplified characters."""
JAPANESE_STOP_WORDS = frozenset(
    """
    ました ません ますか ます でした ですか でしょう です ください さん ちゃん から まで ので のに けど でも
    している しています していた して いました います いる あります ある こと もの それ これ あれ そう
    どこ いつ だれ どう どの どんな なぜ なに 何 誰 よね ですね には では とは って
    """.split()
)
"""Japanese stop words."""
KOREAN_STOP_PIECES = frozenset(
    "어요 아요 해요 했어 었어 았어 습니 니다 나요 가요 까요 에요 예요 에서 으로 에게 한테 까지 부터 하고 "
    "무엇 어디 언제 누구 어떻 떻게 저는 나는 제가 내가".split()
)
"""Korean endings and function words, as pairs of syllables."""
CHINESE_FILLERS = frozenset("的了是我你他她它们在不有和就都也很吗呢吧啊嘛呀哦这那个么什谁哪几")
"""Chinese characters with little meaning of their own."""
