from namesrv_stream.processor.forms import Forms


def test_of_an_owner_the_last_form_is_kept() -> None:
    forms: Forms[int] = Forms()
    assert not forms
    forms.put(b"a", 1, 10)
    forms.put(b"b", 2, 20)
    forms.put(b"c", 1, 30)
    assert [forms.get(form) for form in (b"a", b"b", b"c")] == [None, 20, 30]
    assert len(forms) == 2


def test_all_are_forgotten_at_too_many() -> None:
    forms: Forms[int] = Forms(max_kept=10)
    for number in range(25):
        forms.put(b"%d" % number, number, number)
        assert 1 <= len(forms) <= 10
        assert forms.get(b"%d" % number) == number


def test_an_owner_may_say_another_thing_of_its_form_though_there_is_no_room_for_more() -> None:
    forms: Forms[int] = Forms(max_kept=2)
    for number in range(2):
        forms.put(b"%d" % number, number, number)
    forms.put(b"1", 1, 7)
    assert [forms.get(b"0"), forms.get(b"1")] == [0, 7]
